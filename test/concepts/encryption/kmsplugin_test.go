//lint:file-ignore SA1019 the deprecated version 1 of KMS plugins is supported behind its gate, as in kube-apiserver

package encryption

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	kmsv1 "k8s.io/kms/apis/v1beta1"
	kmsservice "k8s.io/kms/pkg/service"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// kmsPlugin is a key management service of version 2. It does not really encrypt: it inverts the bytes, which is enough to
// recognize what it has processed.
type kmsPlugin struct {
	endpoint string // as in an EncryptionConfiguration
	keyID    atomic.Value
	server   *kmsservice.GRPCService
}

const kmsTimeout = 3 * time.Second

// newKMS returns a plugin that is not running yet.
func newKMS(t *testing.T, keyID string) *kmsPlugin {
	t.Helper()
	socket := socketPath(t)
	p := &kmsPlugin{endpoint: "unix://" + socket}
	p.keyID.Store(keyID)
	p.server = kmsservice.NewGRPCService(socket, kmsTimeout, p)
	return p
}

// start runs the plugin until the test ends.
func (p *kmsPlugin) start(t *testing.T) {
	t.Helper()
	go func() {
		if err := p.server.ListenAndServe(); err != nil {
			t.Errorf("KMS plugin: %v", err)
		}
	}()
	harness.Eventually(t, "the KMS plugin listens", func() bool {
		_, err := os.Stat(strings.TrimPrefix(p.endpoint, "unix://"))
		return err == nil
	})
	t.Cleanup(p.server.Close)
}

// Status implements kmsservice.Service.
func (p *kmsPlugin) Status(context.Context) (*kmsservice.StatusResponse, error) {
	return &kmsservice.StatusResponse{Version: "v2", Healthz: "ok", KeyID: p.keyID.Load().(string)}, nil
}

// Encrypt implements kmsservice.Service.
func (p *kmsPlugin) Encrypt(_ context.Context, _ string, data []byte) (*kmsservice.EncryptResponse, error) {
	return &kmsservice.EncryptResponse{Ciphertext: turned(data), KeyID: p.keyID.Load().(string)}, nil
}

// Decrypt implements kmsservice.Service.
func (p *kmsPlugin) Decrypt(_ context.Context, _ string, request *kmsservice.DecryptRequest) ([]byte, error) {
	return turned(request.Ciphertext), nil
}

// kmsV1Plugin is the same for version 1.
type kmsV1Plugin struct {
	kmsv1.UnsafeKeyManagementServiceServer
}

// startKMSv1 starts a plugin of version 1, which runs until the test ends, and returns its endpoint.
func startKMSv1(t *testing.T) string {
	t.Helper()
	socket := socketPath(t)
	listener := kit.Must(net.Listen("unix", socket))(t)
	server := grpc.NewServer()
	kmsv1.RegisterKeyManagementServiceServer(server, kmsV1Plugin{})
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return "unix://" + socket
}

// Version implements the service.
func (kmsV1Plugin) Version(context.Context, *kmsv1.VersionRequest) (*kmsv1.VersionResponse, error) {
	return &kmsv1.VersionResponse{Version: "v1beta1", RuntimeName: "test", RuntimeVersion: "1"}, nil
}

// Encrypt implements the service.
func (kmsV1Plugin) Encrypt(_ context.Context, request *kmsv1.EncryptRequest) (*kmsv1.EncryptResponse, error) {
	return &kmsv1.EncryptResponse{Cipher: turned(request.Plain)}, nil
}

// Decrypt implements the service.
func (kmsV1Plugin) Decrypt(_ context.Context, request *kmsv1.DecryptRequest) (*kmsv1.DecryptResponse, error) {
	return &kmsv1.DecryptResponse{Plain: turned(request.Cipher)}, nil
}

func turned(data []byte) []byte {
	data = slices.Clone(data)
	slices.Reverse(data)
	return data
}

// socketPath returns a path short enough for a socket, whatever the test's name.
func socketPath(t *testing.T) string {
	t.Helper()
	dir := kit.Must(os.MkdirTemp("", "kms"))(t)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "socket")
}
