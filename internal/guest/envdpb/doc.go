// Package envdpb is the wire format of the process and filesystem services of
// the daemon inside a sandbox, generated from the .proto files beside it.
//
// To generate it again (the versions are pinned so that the result does not
// depend on the day), with protoc from Debian's protobuf-compiler:
//
//	go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
//	go install connectrpc.com/connect/cmd/protoc-gen-connect-go@v1.21.1
//	go generate ./internal/guest/envdpb
package envdpb

//go:generate protoc -I ../../.. --go_out=../../.. --go_opt=paths=source_relative --connect-go_out=../../.. --connect-go_opt=paths=source_relative,package_suffix= internal/guest/envdpb/process.proto internal/guest/envdpb/filesystem.proto
