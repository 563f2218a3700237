//go:build dlease_static

// Links libdlease.a into the program. Not by pkg-config: its -ldlease takes the
// shared library wherever both are installed.

package dlease

// #cgo LDFLAGS: -l:libdlease.a -lm
import "C"
