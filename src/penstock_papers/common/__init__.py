"""What several papers' trials share: figures as data, simulated runs, recorded inputs."""
