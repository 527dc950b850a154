# Reports to Quell's agent that 100 more records are done (agent.policy.progress).
import socket

with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
    s.sendto(b"progress 100", "/run/quell/progress")
