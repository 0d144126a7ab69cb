"""What aligned ranks show together: waits, lateness, transfer, tokens, pipeline bubbles.

In: summaries, a matching, clocks. Out: numbers and tests of chance, without blame. Begin with `fleet_measures.joined`.
"""
