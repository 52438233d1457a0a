"""A real etcd, kube-apiserver and kube-scheduler for one test session, started without containers.

`binaries` builds them from their Go modules into a cache outside the repository, `processes` keeps them from
outliving the tests, `controlplane` starts and stops them, `client` speaks to the API server, `objects` builds the JSON
that tests send.
Nothing here imports Homeport: the control plane is the other party.
"""
