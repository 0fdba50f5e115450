"""NVIDIA Dynamo as released, with its own mock engine as workers: a real PD deployment that needs no GPU."""
