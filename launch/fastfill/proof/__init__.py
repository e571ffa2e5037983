"""The proof that the fast path fires: read the server, send probes, read again, decide.

Acting: ``run`` makes a whole proof or replays one; ``gather`` orders its steps, ``visit`` sends probes, ``companion``,
``answers_send``, ``load`` and ``tracing`` are further steps, ``logsource`` and ``profiling`` fetch what others wrote.
Deciding: ``verdict``, from ``attempt``, ``tally``, ``control``, ``words``, ``answers``, ``soundness`` and ``coverage``:
values in, values out. ``evidence`` is what lies between, and ``folder`` keeps it.
"""
