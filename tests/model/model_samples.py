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
