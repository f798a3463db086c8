"""The `gvisor` backend, and any other OCI runtime (runc, crun, kata) through the same driver.

    owner (asyncio: backend.py, box.py) --control socket--> launcher (launcher.py: one small Python per sandbox)
      |                                                       | clone(NEWNS|NEWPID|NEWNET|NEWIPC|NEWUTS)
      |                                                       v
      |                                                     runsc run: pid 1 of that namespace; its bundle, state and
      |                                                       |        files lie on a tmpfs that only it can see
      |                                                       v
      +--frames over the container's stdin and stdout----> agent (agent.py: pid 1 of the container)
                                                              | posix_spawn
                                                              v
                                                            the candidate's commands, under a uid of their own

Whatever ends the launcher ends the pid namespace, and with it the runtime, its helpers and everything in the container;
the tmpfs goes with the mount namespace. So there is no container to stop, delete or reap, and no folder to remove.

What runs outside asyncio (launcher, agent) is standard library only, so this file stays empty.
"""
