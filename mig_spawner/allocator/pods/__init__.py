"""Which pods carry a lease label now. `base` is the port; `kube` asks Kubernetes, `none` knows nothing."""
