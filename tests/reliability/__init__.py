"""`make reliability`: a soak with faults, and hostile requests; writes docs/evidence/reliability.md.

`upstream.py`: a tool that validates each call itself and writes down the calls that reached it. It is killed and
started again.
`clients.py`: callers that know the right outcome of each call, slow ones, and ones that cut the connection.
`soak.py`: the proxy as a process, the faults, the clients, and the measurements.
`page.py`: the page.
"""
