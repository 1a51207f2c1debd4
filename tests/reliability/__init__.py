"""`make reliability`: a soak with faults, and hostile requests; writes docs/evidence/reliability.md.

upstream.py   a tool that judges each call by itself and writes down what reached it; is killed and started again
clients.py    callers that know what has to come of each call; slow ones; ones that cut the connection
soak.py       the proxy as a process, the faults, the clients, and what was measured
page.py       the page
"""
