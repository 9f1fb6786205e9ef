//go:build !linux

package main

func runSandboxRole() {}
