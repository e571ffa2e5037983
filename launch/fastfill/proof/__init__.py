"""The proof that the fast path fires: read the server, send a probe, read again, decide.

``server`` and ``gather`` act; ``attempt``, ``tally``, ``expected``, ``coverage`` and ``verdict`` only decide.
"""
