"""pdchaos: break a live prefill/decode deployment on purpose and prove whether it wedged."""

__version__ = "0.1.0"
