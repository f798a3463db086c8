"""The `process` backend: Linux namespaces built by a small forked host process.

    owner (asyncio: backend.py, box.py) --control socket--> host (host.py: one small single-threaded Python)
      |                                                       | clone(NEWNS|NEWPID|NEWNET|NEWIPC|NEWUTS|NEWCGROUP)
      |                                                       v
      +--one socket per sandbox----------------------> supervisor (supervisor.py: pid 1 of the sandbox)
      +--pipes, passed as descriptors----------------> the candidate's commands (posix_spawn by the supervisor)

Everything that the host and the supervisors import is standard library only: they are forked thousands of times, so
every page they hold costs. This file stays empty for the same reason.
"""
