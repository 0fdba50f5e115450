"""Small valid files that tests change one thing in."""

from __future__ import annotations

SCENARIO = """\
version: 1
name: small
load:
  - {name: agents, sessions: 60, timeout: 120s}
timeline:
  - {id: wave, kill: {group: agents}, when: {waiting: ">= 20"}}
expect: {recover_within: 60s}
"""

TARGET = """\
version: 1
name: here
router: {url: "http://127.0.0.1:8000"}
prefill:
  - {url: "http://127.0.0.1:30000"}
decode:
  - {url: "http://127.0.0.1:30001"}
environment: staging
allow: [kill]
"""

PACK = r"""
version: 1
name: engine
timeouts:
  - {name: waiting, default: 300s}
  - {name: bootstrap, default: 100s}
gauge_lag: 35s
metrics:
  - name: prefill_queue
    kind: gauge
    use: queue
    roles: [prefill]
    aliases: [{metric: "e:queue"}]
signatures:
  - id: gone
    class: abort
    title: gone
    pattern: 'room=(?P<room>\d+) gone'
    roles: [decode]
    key: room
    samples: {match: ["room=5 gone"]}
"""

FULL_SCENARIO = """\
version: 1
name: full
about: all of it
requires: {packs: [sglang], metrics: [decode_prealloc_queue], nodes: {decode: 2}}
load:
  - name: agents
    sessions: 60
    rounds: 4
    prompt_tokens: 300
    max_tokens: 2500
    timeout: 120s
    api: chat
    stream: true
    arrival: {ramp: 5s}
    think_time: 500ms
    saturate: {waiting: 20, max_sessions: 400}
    model: some-model
    headers: {X-Team: chaos, X-Gate: {secret: "cmd:echo x"}}
    api_key: env:KEY
    temperature: 0.5
    ignore_eos: false
  - {name: open, arrival: {rate: 5/s, for: 60s}}
timeline:
  - {id: wave, kill: {group: agents, sessions: all, how: sigkill}, when: {waiting: ">= 20"}, give_up: 60s,
     aim: {waiting: ">= 20", server_aborts: ">= 1"}}
  - {id: more, kill: {group: agents, sessions: 5, how: rst}, after: wave}
  - {id: last, kill: {group: agents, how: fin}, at: 90s}
  - {id: freeze, signal: {where: {role: decode, mode: 50%, child: scheduler}, send: STOP}, for: 20s, after: last}
  - {id: end, signal: {where: {role: decode, node: decode-1}, send: KILL}, at: 91s}
  - {id: again, restart: {where: {role: prefill, mode: 2}, as: other, timeout: 60s}, for: 30s, at: 92s}
  - {id: junk, foreign_frame: {where: {role: prefill, mode: all}}, at: 93s}
  - {id: give-up, abort_frame: {}, at: 94s}
  - {id: nothing, sham: {group: agents}, at: 95s}
  - {id: cut, partition: {where: {role: decode}, from: {role: prefill, node: p1}, direction: in}, for: 20s, at: 96s}
  - {id: lossy, loss: {where: {role: decode}, from: {role: prefill, mode: all}, percent: 12.5%}, at: 97s}
  - {id: slow, rate: {where: {role: prefill}, to: {role: decode}, rate: 1.5mbit}, for: 20s, at: 98s}
  - {id: late, delay: {where: {role: prefill}, to: {role: decode}, delay: 100ms, jitter: 20ms}, at: 99s}
  - {id: shut, port_block: {where: {role: prefill}, port: bootstrap, from: {role: decode}}, at: 100s}
  - {id: door, port_block: {where: {role: prefill}, port: 9000, from: {role: router}}, at: 101s}
cycles: {count: 2, rest: 40s, until: wedged}
trials: {count: 20, until: wedged}
control: {count: 10, slower_by: 30%}
sweep: {load.agents.sessions: [20, 40, 80], canary.every: [1s, 2s, 3s]}
observe: {settle: 10s, at_most: engine-timeouts, idle: 60s, quiet: 10s, baseline: 5s, measure: 5s}
canary: {every: 1s, deadline: 20s, in_a_row: 5, max_tokens: 8, api: generate}
expect: {recover_within: 60s, allow: [healthy, slow-recovery]}
seed: 7
"""
FULL_TARGET = """\
version: 1
name: here
about: all of it
environment: production
engine: sglang
router_engine: sglang-router
router: {url: "http://127.0.0.1:8000", metrics: "http://127.0.0.1:29000/metrics", log: [router.log], name: router}
prefill:
  - {url: "http://127.0.0.1:30000", log: [a.log, b.log], pid: 5, bootstrap_port: 8998, restart: "systemctl restart p",
     restart_as: {other: "systemctl restart p-other"}}
decode:
  - {url: "https://[::1]:30001/base", pidfile: decode.pid, port: 30001}
model: m
api_key: file:/run/key
headers: {X-Team: chaos, X-Gate: {secret: env:GATE}}
tls: {verify: false, ca: ca.pem}
allow: [kill, signal]
restart: docker compose restart
timeouts: {waiting: 30s}
gauge_lag: 3s
time_scale: 0.1
"""

OBSERVATIONS = """\
version: 1
name: small
watched: {from: "2026-06-20T14:00:00Z", to: "2026-06-20T14:10:00Z"}
deployment: {engine: sglang, nodes: [{role: prefill}]}
"""

FULL_OBSERVATIONS = """\
version: 1
name: full
about: all of it
date: "2026-06-20"
watched: {from: "14:00:00Z", to: "2026-06-20T16:10:00.5+02:00"}
deployment:
  engine: sglang
  router_engine: sglang-router
  version: 0.5.14
  nodes:
    - {role: router}
    - {role: prefill, name: left, ranks: [TP0]}
    - {role: decode}
  timeouts: {waiting: 300s}
  gauge_lag: 35s
logs:
  - {file: prefill.log, node: left, utc_offset: "-07:00", until: "14:10:00Z"}
scrapes:
  - {file: sub/before.txt, node: left, at: "14:00:00Z", where: {engine_type: prefill}, quiet_for: 60s}
gauges:
  - {at: "14:00:00Z", node: decode-0, values: {decode_transfer_queue: 2.5}, quiet_for: 60s}
requests:
  - {at: "14:01:00Z", path: left>decode-0, ended: complete, status: 200, first_byte: 210ms, took: 880ms, tokens: 8,
     finish: stop, content: ok, note: one}
  - {at: "14:02:00Z", path: routed, ended: gave-up, took: 60s}
load:
  - {from: "14:00:00Z", to: "14:01:00Z", sessions: 60, name: agents, completed: 5, failed: 0, goodput: 97.5%, note: x}
actions:
  - {at: "14:01:00Z", did: kill-clients, id: wave, how: sigkill, note: x,
     sessions: {connecting: 1, waiting: 2, streaming: 3, thinking: 4}, aim: {waiting: ">= 1"}}
  - {at: "14:02:00Z", did: kill, nodes: [left], done_by: "14:03:00Z", failed: it did not}
health:
  - {at: "14:02:00Z", node: left, endpoint: /health, status: 503, took: 1s}
processes:
  - {at: "14:02:00Z", node: left, pid: 41, alive: true, state: sleeping, started: "08:00:00Z", threads: [main],
     children: [{name: scheduler, pid: 42, alive: false}]}
heartbeats:
  - {at: "14:02:00Z", node: left, last: "13:00:00Z"}
expect: {recover_within: 60s, deadline: 20s, allow: [healthy]}
"""
