"""Many runs: grid, manifest, engines (this machine, Ray) and what they would cost."""
