"""Real SGLang: prefill, decode and router as released, on CPU."""
