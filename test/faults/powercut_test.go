package faults

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// TestPowerCut records a child's writes and syncs, and checks what power cuts
// leave.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	harness.Must(t, err)
	recorder := NewRecorder(t, dir, func(name string) bool { return name == "file" })
	c := start(t, recorder.Run)
	file := filepath.Join(dir, "file")
	c.expect(t, done, "write", file)
	c.expect(t, done, "sync", file)
	c.expect(t, done, "write", filepath.Join(dir, "other"))
	c.expect(t, done, "sync", dir)
	recorder.Mark("named")
	c.expect(t, done, "remove", file)
	c.expect(t, done, "sync", dir)
	steps, err := recorder.Steps()
	harness.Must(t, err)
	const none, empty, whole = "none", "", "text"
	// What may be there before each step, and at the end.
	want := []map[string]bool{
		{none: true}, {none: true, empty: true, whole: true}, {none: true, whole: true}, {whole: true}, {whole: true},
		{none: true, whole: true}, {none: true},
	}
	if len(steps) != len(want)-1 {
		t.Fatalf("there are %d steps: %v", len(steps), steps)
	}
	random := rand.New(rand.NewPCG(1, 2))
	cut := NewPowerCut()
	for i, want := range want {
		got := map[string]bool{}
		for range 50 {
			left := t.TempDir()
			harness.Must(t, cut.Write(left, random))
			text, err := os.ReadFile(filepath.Join(left, "file"))
			if err != nil {
				text = []byte(none)
			}
			got[string(text)] = true
		}
		if !maps.Equal(got, want) {
			t.Errorf("before step %d there may be %v, want %v", i, got, want)
		}
		if i < len(steps) {
			cut.Do(&steps[i])
		}
	}
}
