"""One page about a run, or about several, that a browser opens without a network: ``report.html``.

Reads nothing but the run's folder. May import what ``rlinf.telemetry`` may; the plots are made by plotly.js, which the
package plotly brings along. What a tab shows is gathered by a module (``curves``, ``times``, ``timeline``, ``samples``,
``episodes``, ``recipe``, ``history``) and shown by the JavaScript file of the same name in ``assets``; a new tab is one
of each, a section in ``assets/page.html`` and an entry in ``page.py``.
"""

from __future__ import annotations

from rlinf.telemetry.report.page import write_report
from rlinf.telemetry.report.refresh import RunReport
from rlinf.telemetry.report.run_folder import RunFolder, find_runs

__all__ = ["RunFolder", "RunReport", "find_runs", "write_report"]
