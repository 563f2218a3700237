//go:build !dlease_static

// Links with libdlease.so, which pkg-config finds.

package dlease

// #cgo pkg-config: dlease
import "C"
