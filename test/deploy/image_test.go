package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// imageConfig is an image's configuration for running it.
type imageConfig struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Config       struct {
		User         string
		Env          []string
		ExposedPorts map[string]struct{}
		Volumes      map[string]struct{}
		Entrypoint   []string
		Cmd          []string
		StopSignal   string
	} `json:"config"`
}

// TestImage builds the image for another platform than this one, and runs its command in its files, as its user.
func TestImage(t *testing.T) {
	t.Parallel()
	root, config := buildImage(t)
	files, err := filepath.Glob(root + "/*")
	harness.Must(t, err)
	if want := []string{root + "/data", root + "/sqube"}; !slices.Equal(files, want) {
		t.Errorf("the image contains %v", files)
	}
	c := config.Config
	if _, exposed := c.ExposedPorts["6443/tcp"]; config.Architecture != "arm64" || config.OS != "linux" || c.User != "65532:65532" || !exposed || c.StopSignal != "SIGTERM" || !slices.Contains(c.Env, "TMPDIR=/data") {
		t.Errorf("the image is %+v", config)
	}
	if _, there := c.Volumes["/data"]; !there {
		t.Errorf("the volumes are %v", c.Volumes)
	}
	data := filepath.Join(root, "data")
	s := sqube.Start(t, sqube.Options{DataDir: data, Datastore: "sqlite:///data/sqube.db", Prepare: func(cmd *exec.Cmd) {
		address := cmd.Args[slices.Index(cmd.Args, "--bind-address"):]
		cmd.Args = slices.Concat(c.Entrypoint, c.Cmd, address)
		cmd.Path, cmd.Dir, cmd.Env = cmd.Args[0], "/", c.Env
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		if uid := os.Geteuid(); uid != 0 {
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 65532, HostID: uid, Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 65532, HostID: os.Getegid(), Size: 1}}
		}
	}})
	administrator := cluster{env: sqube.KubectlEnv(t, s.Kubeconfig)}
	if out := administrator.kubectl(t, "", "get", "namespaces", "-o", "name"); !strings.Contains(out, "namespace/kube-system\n") {
		t.Errorf("kubectl get namespaces prints\n%s", out)
	}
	s.Stop(t)
}

// buildImage returns a folder with the image's content, and its configuration.
func buildImage(t *testing.T) (root string, config imageConfig) {
	t.Helper()
	dir := t.TempDir()
	context := filepath.Join(dir, "context")
	harness.Must(t, os.CopyFS(filepath.Join(context, "deploy/data"), os.DirFS("../../deploy/data")))
	binary, err := filepath.EvalSymlinks(sqube.Binary(t))
	harness.Must(t, err)
	harness.Must(t, os.MkdirAll(filepath.Join(context, "bin/dist"), 0o755))
	const copied = "bin/dist/sqube-1.0.0-linux-arm64" // as by make dist
	if out, err := exec.Command("cp", binary, filepath.Join(context, copied)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	buildah := func(args ...string) []byte {
		args = append([]string{"--root", dir + "/storage", "--runroot", dir + "/run", "--storage-driver", "vfs"}, args...)
		cmd := exec.Command("buildah", args...)
		var errors strings.Builder
		cmd.Stderr = &errors
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("buildah %s: %v\n%s\n%s", strings.Join(args, " "), err, out, &errors)
		}
		return out
	}
	root = filepath.Join(dir, "root")
	buildah("build", "--isolation", "chroot", "--platform", "linux/arm64", "--build-arg", "BINARY="+copied,
		"--file", "../../deploy/Dockerfile", "--ignorefile", "../../deploy/Dockerfile.dockerignore", "--tag", "sqube", "--output", "type=local,dest="+root, context)
	var inspected struct{ OCIv1 imageConfig }
	harness.Must(t, json.Unmarshal(buildah("inspect", "--type", "image", "sqube"), &inspected))
	harness.Must(t, os.Chmod(root, 0o755))
	return root, inspected.OCIv1
}
