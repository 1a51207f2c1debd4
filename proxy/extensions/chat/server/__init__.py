"""Answers the requests of routes with `model`: relays each request, and judges the calls in
the answer by the request's tools.

    model_relay.py     one request, from its body to the answer
    model_exchange.py  the answers to it: judges them, and asks again
    judged_stream.py   a streamed answer, whose calls are held until they are whole
    stream_pieces.py   the pieces and events of a streamed answer, with turns for others
    call_judge.py      judges the calls of one answer by the tools of its request
    asking_again.py    asks the model again when its calls cannot be repaired
    answer_bytes.py    the bytes of an answer, and its headers
    large_bodies.py    reads and writes large requests and answers in a child process
    model_metrics.py   counts calls, tokens of asking again, and unread answers
    call_records.py    notes the calls of an answer for log, metrics and console
"""
