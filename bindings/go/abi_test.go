//go:build !dlease_static

package dlease_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/dlease"
)

// The test runs itself once more, under a library of another ABI version.
func TestAnotherABIVersionIsRefused(t *testing.T) {
	if os.Getenv("DLEASE_TEST_OTHER_ABI") != "" {
		_, err := dlease.Open("mysql://host/db")
		var detail *dlease.Error
		if !errors.Is(err, dlease.ErrConfig) || !errors.As(err, &detail) ||
			!strings.Contains(err.Error(), "ABI version 7, and this program was compiled for 0") {
			t.Errorf("got %v", err)
		}
		return
	}
	source, library := filepath.Join(t.TempDir(), "other.c"), filepath.Join(t.TempDir(), "other.so")
	if err := os.WriteFile(source, []byte("unsigned dl_abi_version(void) { return 7; }\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	again := exec.Command(os.Args[0], "-test.run=^TestAnotherABIVersionIsRefused$")
	again.Env = append(os.Environ(), "DLEASE_TEST_OTHER_ABI=1", "LD_PRELOAD="+library)
	if out, err := again.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
