//go:build tools

// Package tools names the program that tests/controlplane/build.py builds, so that `go mod tidy` keeps what it needs.
package tools

import _ "go.etcd.io/etcd/server/v3"
