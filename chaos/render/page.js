"use strict";
// Draws the timeline once the page itself stands. Everything the page has to say is there without this.
(async () => {
  const figure = JSON.parse(document.getElementById("figure").textContent);
  const chart = document.getElementById("chart");
  const note = document.getElementById("chart-note");
  if (!chart) return;
  try {
    await load();
  } catch (error) {
    note.textContent = "This browser cannot unpack the timeline (" + error + "). “What happened” below tells it in words.";
    chart.style.minHeight = "0";
    return;
  }
  const coarse = matchMedia("(pointer: coarse)").matches;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paper = matchMedia("print");
  const config = {
    responsive: true, displaylogo: false, scrollZoom: false, displayModeBar: coarse || innerWidth < 620 ? false : "hover",
    modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
  };
  if (coarse) figure.layout.dragmode = false; // a finger scrolls the page
  note.remove();
  paint();
  await Plotly.newPlot(chart, figure.data, figure.layout, config);
  fit();
  for (const media of [dark, paper]) media.addEventListener("change", repaint);
  chart.on("plotly_afterplot", fit); // after a resize and after a zoom, too
  for (const button of document.querySelectorAll("[data-trace]")) button.addEventListener("click", toggle);

  async function load() {
    const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    document.getElementById("plotly").remove();
  }

  // Colours come from the style sheet, so that light, dark and paper have one source.
  function paint() {
    const style = getComputedStyle(document.documentElement);
    const color = (role) => style.getPropertyValue("--" + role).trim();
    const layout = figure.layout;
    for (const trace of figure.data) {
      const tint = color(trace.meta.role);
      if (trace.line) trace.line.color = tint;
      if (trace.marker) { trace.marker.color = tint; trace.marker.line.color = tint; }
    }
    layout.font.color = color("ink");
    layout.font.family = getComputedStyle(document.body).fontFamily;
    layout.modebar = { bgcolor: color("card"), color: color("soft"), activecolor: color("ink") };
    layout.hoverlabel.bgcolor = color("card");
    layout.hoverlabel.font = { color: color("ink") };
    layout.hoverlabel.bordercolor = color("soft");
    for (const name of Object.keys(layout)) {
      if (/^[xy]axis/.test(name)) Object.assign(layout[name], { gridcolor: color("grid"), linecolor: color("rule"), spikecolor: color("soft") });
    }
    for (const shape of layout.shapes) if (shape.type === "line") shape.line.color = color("wave");
    for (const text of layout.annotations) {
      text.font = { size: 12, ...text.font };
      text.font.color = color(text.name === "wave" ? "wave" : text.name === "phase" ? "soft" : "ink");
      if (text.name === "lane" || text.name === "title") text.bgcolor = color("card");
    }
  }

  function repaint() {
    paint();
    Plotly.react(chart, figure.data, figure.layout, config);
    fit();
  }

  // A phase's name is shown only where it fits its phase; names of waves may stand alone.
  function fit() {
    const axis = chart._fullLayout && chart._fullLayout.xaxis;
    if (!axis) return;
    const wide = axis._length;
    const [from, to] = axis.range;
    const spans = figure.layout.meta.phase_s;
    const update = {};
    let k = 0;
    figure.layout.annotations.forEach((text, i) => {
      if (text.name !== "phase") return;
      const fits = (spans[k++] / (to - from)) * wide > text.text.length * 6.4;
      if (fits !== (text.visible !== false)) update["annotations[" + i + "].visible"] = fits;
    });
    if (Object.keys(update).length) Plotly.relayout(chart, update);
  }

  function toggle(event) {
    const button = event.currentTarget;
    const shown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(shown));
    Plotly.restyle(chart, { visible: shown }, [Number(button.dataset.trace)]);
  }
})();
