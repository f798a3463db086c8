"""Many sandboxes under one owner: leases, a bound on how many live, commands that run once, and a register of them."""
