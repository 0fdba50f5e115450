"""Labs of real engines: how they are installed, enclosed, started and stopped."""
