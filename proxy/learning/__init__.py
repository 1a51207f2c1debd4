"""What upstreams say of their tools: asked for once, remembered within bounds, and kept true while answers flow by.

    learner.py   asks for a list (one question at a time for each credential), and remembers lists and sessions
    watching.py  looks at answers on their way to the client, and changes nothing in them

This room does not know what a route is, nor how a question is put: whoever asks brings that along.
"""

from __future__ import annotations

from proxy.learning.learner import Key, Known, Learner, Refused, Unlearned
from proxy.learning.watching import Telling, Watch, Whole, watched

__all__ = ["Key", "Known", "Learner", "Refused", "Telling", "Unlearned", "Watch", "Whole", "watched"]
