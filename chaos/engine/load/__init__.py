"""Load: supervises the agent processes that run the sessions. The sessions themselves live in `chaos.agent`."""
