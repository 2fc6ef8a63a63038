"""Routes by resource: jobs, the fleet (cores and models), health."""
