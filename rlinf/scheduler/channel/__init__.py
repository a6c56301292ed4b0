"""Named, keyed, weighted, bounded queues between any processes of a run.

``queue.py`` is the pure logic, ``host.py`` the small actor that holds queues on a node, ``channel.py`` what users hold.
The host never unpickles an item and imports no torch.
"""

from rlinf.scheduler.channel.channel import Channel as Channel
