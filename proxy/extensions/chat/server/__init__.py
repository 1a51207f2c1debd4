"""Answers the requests of routes with `model`.

model_relay.py   one request, from its body to the answer
call_judge.py    judges the calls of one answer by the tools of its request
"""
