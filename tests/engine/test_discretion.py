"""Events tell no secret and no machine: servers stand for the machines they are on."""

from __future__ import annotations

import pytest

from chaos.engine import secrets
from chaos.engine.discretion import discreet, machine_names, without_secrets
from chaos.model import events as ev
from chaos.model.target import Target

SSH = {"ssh": {"host": "gpu2.example.net", "jump": "me@bastion.example.net:22,second"}}


def target(**more) -> Target:
    plain = {
        "version": 1,
        "name": "t",
        "router": {"url": "http://10.0.0.1:30000", "ssh": {"host": "GPU1"}},
        "prefill": [{"url": "http://10.0.0.2:30001", "address": "fd00::2", **SSH}],
        "decode": [{"url": "http://10.0.0.1:30002", "ssh": {"host": "decode"}}, {"url": "http://127.0.0.1:5"}],
    }
    return Target.model_validate({**plain, **more})


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(secrets, "_known", {'se"cret-1', "secret-number-2"})
    return 'se"cret-1'


def test_a_machine_is_called_by_the_server_that_is_on_it() -> None:
    names = machine_names(target())
    assert ("router-0", "prefill-0", "prefill-0") == (names["gpu1"], names["10.0.0.2"], names["gpu2.example.net"])
    assert ("prefill-0", "prefill-0") == (names["fd00::2"], names["bastion.example.net"])
    assert names["10.0.0.1"].startswith("host-"), "two servers are there"
    assert not {"127.0.0.1", "decode", "localhost"} & set(names)


def test_prose_names_no_machine_and_everything_else_stays() -> None:
    change = discreet(target())
    lost = ev.EvidenceLost(
        t_ns=1, probe="log", node="decode-0", from_ns=1, to_ns=2, cause="http://10.0.0.2:30001 by gpu1 (xgpu1, gpu1.a)"
    )
    assert "http://prefill-0:30001 by router-0 (xgpu1, gpu1.a)" == change(lost).cause
    assert change(lost) == ev.EvidenceLost(**{**_fields(lost), "cause": change(lost).cause})
    named = ev.FaultStep(
        t_ns=1, fault="gpu1", kind="rate", stage="verified", ok=True, measured={"to 10.0.0.2": "dropped at GPU1"}
    )
    assert ("gpu1", {"to prefill-0": "dropped at router-0"}) == (change(named).fault, change(named).measured)


def test_labels_of_metrics_tell_workers_apart_without_naming_machines() -> None:
    samples = tuple(
        ev.Sample(name="router_worker_health", labels=f"worker=http://{host}", value=1.0)
        for host in ("10.0.0.2:30001", "10.0.0.1:30000", "10.0.0.1:30002")
    )
    seen = discreet(target())(ev.Scrape(t_ns=1, node="router-0", ok=True, samples=samples))
    labels = [sample.labels for sample in seen.samples]
    assert "worker=http://prefill-0:30001" == labels[0]
    assert 3 == len(set(labels))
    assert "10.0.0" not in str(labels)


def test_secrets_go_wherever_they_stand(secret: str) -> None:
    change = discreet(target(router={"url": "http://127.0.0.1:1"}, prefill=[{"url": "http://127.0.0.1:2"}]))
    ended = ev.RequestEnded(t_ns=1, req="secret-number-2", kind="load", path="routed", detail=f"who is {secret}?")
    assert ("[redacted]", "who is [redacted]?") == (change(ended).req, change(ended).detail)
    untouched = ev.RequestEnded(t_ns=1, req="r", kind="load", path="routed", detail="fine")
    assert untouched is change(untouched)


@pytest.mark.usefixtures("secret")
def test_the_target_that_is_kept_has_no_secret_in_its_commands() -> None:
    kept = without_secrets(
        target(
            restart="deploy --token abcdef123",
            api_key="cmd:pass show secret-number-2",
            headers={"x-gate": {"secret": "env:GATE_KEY"}},
            router={
                "url": "http://h:1",
                "restart_as": {"other": "curl -H 'Authorization: Bearer abcdef123' x"},
                "log": [{"command": "tail --password=abcdef123"}, {"kubectl": "-n llm -l app=x"}],
            },
        )
    )
    said = kept.model_dump_json()
    assert "abcdef123" not in said
    assert "secret-number-2" not in said
    assert ("env:GATE_KEY", "-n llm -l app=x") == (kept.headers["x-gate"].secret, kept.router.log[1].kubectl)


def _fields(event: ev.EvidenceLost) -> dict[str, object]:
    return {name: getattr(event, name) for name in event.__struct_fields__}
