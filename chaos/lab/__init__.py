"""Deployments that pdchaos starts itself: `provider` starts them, `keeper` keeps one up, `sim` is the embedded one."""
