"""Our own HTTP/1.1 towards clients: small, and strict about what it reads.

    connection.py   one client's connection: requests in their order, back-pressure, its end
    request.py      a request, and a body that is still on its way
    answer.py       an answer as bytes          stream.py   the body of one that is written piece by piece
    fields.py       the lines of heads that were read before
    terms.py        what all connections of a listener share

What bytes mean is said in `gate.py` and `heads.py`; nothing here looks into them.
"""
