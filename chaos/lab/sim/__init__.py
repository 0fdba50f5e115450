"""An embedded PD deployment that behaves to an outside observer as SGLang PD does, with named historical bugs.

Router, prefill and decode nodes are separate processes with real sockets. This package imports nothing else of
pdchaos and never reads the packs: it is written from the engine's own behaviour, so that a harness that understands
the sim has a chance to understand the engine. Where each thing lives:

- `router` the gateway; `prefill` and `decode` the two kinds of node; `process` what every process has in common
- `frontend` requests in, tokens out, disconnects noticed late; `generation` the request APIs; `endpoints` the rest
- `prefill_scheduler`, `decode_scheduler` the queues; `pool` KV tokens and slots; `kv` what KV bytes are
- `ranks` data-parallel ranks; `rank_process` and `rank_child` the process of each rank
- `control` the prefill's control thread; `peers` the decode's end of it; `transfer` KV over TCP; `bootstrap` `/route`
- `exposition`, `families`, `stats` metrics and their staleness; `lines` the log
- `builds` the named variants: this is the place to add a bug
"""
