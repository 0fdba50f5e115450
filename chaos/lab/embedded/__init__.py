"""The embedded lab `sim` as pdchaos starts and stops it; `chaos/lab/sim` is what it starts, and knows nothing of us."""
