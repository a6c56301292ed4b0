"""What runs in a guest: a process with the interpreter and the packages of a simulator, which serves one env worker.

Imports the standard library, numpy and its own modules only, by relative names: a guest loads this folder as the
package ``rlinf_guest`` (``__main__``), so that it may have any ``rlinf`` of its own, or none. A new simulator is an
adapter: a module with a function ``make`` or ``make_batch`` (``rows``), here or anywhere the guest can import. The
first line of an adapter here says if it is unproven: tested, but never run with its simulator.
"""
