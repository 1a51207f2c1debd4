"""The place of the cluster: a cache outside of the repository, and addresses that lead nowhere.

Everything runs in its own network namespace with the documentation networks of RFC 5737: nothing outside is
reached, and nothing outside reaches in.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CACHE: Final = Path(os.environ.get("TOOLCALL_PROXY_CLUSTER", Path.home() / ".cache" / "toolcall-proxy-cluster"))
BIN: Final = CACHE / "bin"
STATE: Final = CACHE / "state"
NAMESPACE: Final = "tpcluster"
NODE: Final = "192.0.2.1"
PODS: Final = "198.51.100.0/24"
SERVICES: Final = "203.0.113.0/24"
ETCD: Final = (21500, 21501)
API: Final = f"https://{NODE}:21502"
METRICS_PORT: Final = 21540
TOKEN: Final = "a-token-of-this-cluster"
# All of it ends then, whatever is under way.
LONGEST: Final = 1800
# Megabytes that the image may take, unpacked.
LARGEST_IMAGE: Final = 120
# Seconds within which the pods of the release before are gone: the chart's period of grace, and some more.
ENDED_WITHIN: Final = 330
# Seconds within which a pod that is ended while it starts is gone.
GONE_WITHIN: Final = 5.0

PROGRAMS: Final = ("control", "node", "containerd", "containerd-shim-runc-v2", "ctr", "metrics-server")
# Program -> the Debian package that brings it.
PACKAGES: Final = {
    "runc": "runc", "nft": "nftables", "ip": "iproute2", "kubectl": "kubernetes-client", "openssl": "openssl",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
}  # fmt: skip

CONTAINERD: Final = """\
version = 3
root = "{state}/containerd"
state = "{state}/containerd-run"
[grpc]
  address = "{state}/containerd.sock"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = '{snapshotter}'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = 'localhost/pause:1'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['/usr/lib/cni']
    conf_dir = '{state}/cni'
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
      BinaryName = '/usr/sbin/runc'
"""
CNI: Final = """\
{{"cniVersion": "1.0.0", "name": "pods", "plugins": [{{"type": "ptp", "ipMasq": false, "ipam": {{"type": "host-local",
 "dataDir": "{state}/ipam", "ranges": [[{{"subnet": "198.51.100.0/24"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}}}]}}
"""
KUBELET: Final = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix://{state}/containerd.sock
clusterDNS: [192.0.2.1]
clusterDomain: cluster.local
resolvConf: {state}/resolv.conf
evictionHard: {{memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}}
imageGCHighThresholdPercent: 99
imageGCLowThresholdPercent: 98
enforceNodeAllocatable: []
podLogsDir: {state}/pods
syncFrequency: 10s
"""
KUBE_PROXY: Final = """\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {{kubeconfig: {state}/kubeconfig}}
clusterCIDR: 198.51.100.0/24
hostnameOverride: node1
bindAddress: 192.0.2.1
conntrack: {{maxPerCore: 0, min: 0, tcpCloseWaitTimeout: 0s, tcpEstablishedTimeout: 0s}}
"""
# The metrics server is a process of the node, so its Service leads to the node's address.
METRICS: Final = """\
apiVersion: v1
kind: Service
metadata: {{name: metrics, namespace: kube-system}}
spec: {{ports: [{{port: 443, targetPort: {metrics_port}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: metrics-1, namespace: kube-system, labels: {{kubernetes.io/service-name: metrics}}}}
addressType: IPv4
ports: [{{port: {metrics_port}, protocol: TCP}}]
endpoints: [{{addresses: [192.0.2.1]}}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {{name: v1beta1.metrics.k8s.io}}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {{name: metrics, namespace: kube-system, port: 443}}
"""
KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{api}", insecure-skip-tls-verify: true}}}}]
users: [{{name: u, user: {{token: {token}}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
"""
