package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// TestEnded ends a process before its files are opened, and between opening and reading them.
func TestEnded(t *testing.T) {
	command := exec.Command("sleep", "1000")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	stat, err := os.Open(fmt.Sprintf("/proc/%d/stat", command.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer stat.Close()
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait() // it was killed
	if _, err := io.ReadAll(stat); !ended(err) {
		t.Errorf("reading: %v", err)
	}
	if _, err := readStat(command.Process.Pid); !ended(err) {
		t.Errorf("opening: %v", err)
	}
}
