"""The engine that runs plugins: registry, profiles, one scheduling cycle, and the guard around every plugin call.

It knows the extension points and their order, turns a fault into a status that names the plugin, and keeps pods that
wait at Permit.

Not here: any single plugin, the snapshot of the cluster (it is handed in through the Protocols of ``app.framework``),
and anything that awaits while a decision is being taken.
"""
