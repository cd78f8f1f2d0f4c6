package postgres

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// write writes a file of mode and returns its path.
func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeCertificate writes a certificate with a serial number, and its key.
func writeCertificate(t *testing.T, certFile, keyFile string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0o600)
	write(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})), 0o600)
}

// TestRenew changes the files that say how to connect, between two connections.
func TestRenew(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	services := func(host, database string) {
		write(t, file("services"), fmt.Sprintf("[s]\nhost=%s\ndbname=%s\nuser=u\npassfile=%s\nsslmode=verify-ca\nsslcert=%s\nsslkey=%s\nsslrootcert=%s\n",
			host, database, file("passwords"), file("cert"), file("key"), file("root")), 0o600)
	}
	passwords := func(password string) { write(t, file("passwords"), "*:*:*:*:"+password+"\n", 0o600) }
	services("a", "db")
	passwords("old")
	writeCertificate(t, file("cert"), file("key"), 1)
	writeCertificate(t, file("root"), file("unused"), 1)
	config, err := Database{DSN: "postgres://?service=s&servicefile=" + file("services")}.parse()
	if err != nil {
		t.Fatal(err)
	}
	connecting := func() (*pgx.ConnConfig, error) {
		one := config.ConnConfig.Copy()
		return one, config.BeforeConnect(t.Context(), one)
	}
	serial := func(c *pgx.ConnConfig) int64 {
		cert, err := x509.ParseCertificate(c.TLSConfig.Certificates[0].Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return cert.SerialNumber.Int64()
	}
	before, err := connecting()
	if err != nil || before.Host != "a" || before.Password != "old" || serial(before) != 1 {
		t.Fatalf("the first connection: %s, %s, %v", before.Host, before.Password, err)
	}
	services("b,c", "db")
	passwords("new")
	writeCertificate(t, file("cert"), file("key"), 2)
	writeCertificate(t, file("root"), file("unused"), 2)
	after, err := connecting()
	if err != nil || after.Host != "b" || len(after.Fallbacks) != 1 || after.Password != "new" || serial(after) != 2 || after.TLSConfig.RootCAs.Equal(before.TLSConfig.RootCAs) {
		t.Errorf("the connection after the change: %s, %s, %d, %v", after.Host, after.Password, serial(after), err)
	}
	if after.RuntimeParams["application_name"] != "sqube" || after.ConnectTimeout != connectTimeout {
		t.Error("the connection after the change lacks settings")
	}
	services("b", "other")
	if _, err := connecting(); err == nil || !strings.Contains(err.Error(), `the service file names the database "other" now, instead of "db"`) {
		t.Errorf("another database: %v", err)
	}
	services("b", "db")
	write(t, file("cert"), "nothing", 0o600)
	if _, err := connecting(); err == nil || !strings.Contains(err.Error(), "a file that the DSN or the environment names can't be used: unable to load cert") {
		t.Errorf("a wrong certificate: %v", err)
	}
}

// command returns a password command that runs a script. $0 is the script's own path.
func command(t *testing.T, script string) (_ *PasswordCommand, path string) {
	t.Helper()
	path = write(t, filepath.Join(t.TempDir(), "script"), "#!/bin/sh\n"+script, 0o700)
	return NewPasswordCommand(path + "  one two "), path
}

// TestPasswordCommandRunsOnce needs a password for many connections at once, and then another one.
func TestPasswordCommandRunsOnce(t *testing.T) {
	p, path := command(t, `echo $* >>$0.ran; cat $0.secret`)
	write(t, path+".secret", "first\n", 0o600)
	config, err := Database{DSN: "postgres://u@h/db", Password: p}.parse()
	if err != nil {
		t.Fatal(err)
	}
	needs := func(want string) {
		t.Helper()
		one := config.ConnConfig.Copy()
		if err := config.BeforeConnect(t.Context(), one); err != nil || one.Password != want {
			t.Errorf("the password is %q, %v, want %q", one.Password, err, want)
		}
	}
	var connecting sync.WaitGroup
	for range 100 {
		connecting.Go(func() { needs("first") })
	}
	connecting.Wait()
	ran, err := os.ReadFile(path + ".ran")
	if err != nil || strings.Trim(string(ran), "one tw\n") != "" || strings.Count(string(ran), "\n") > 50 {
		t.Errorf("for 100 connections it ran so: %q, %v", ran, err)
	}
	write(t, path+".secret", "second\r\n", 0o600)
	p.until = time.Time{} // some seconds later
	needs("second")
}

// TestPasswordCommandFails runs programs that print no password. The errors say why, and reveal nothing.
func TestPasswordCommandFails(t *testing.T) {
	for script, want := range map[string]string{
		`echo opensesame; echo not opensesame: no credentials >&2; exit 3`: "--datastore-password-command failed: exit status 3: not …: no credentials",
		`true`:                                "--datastore-password-command printed no password",
		`echo opensesame; echo another`:       "--datastore-password-command must print the password and nothing else",
		`head -c 70000 /dev/zero | tr '\0' x`: "--datastore-password-command must print the password and nothing else",
	} {
		p, _ := command(t, script)
		_, err := p.password(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "opensesame") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", script, err)
		}
	}
	if _, err := NewPasswordCommand("/nothing/there opensesame").password(t.Context()); !errors.Is(err, os.ErrNotExist) || strings.Contains(err.Error(), "opensesame") {
		t.Errorf("a missing program: %v", err)
	}
	if NewPasswordCommand("  ") != nil {
		t.Error("no words are a program")
	}
}

// TestPasswordCommandHangs ends a program, and what it has started, when its caller gives up. The next caller gets its password.
func TestPasswordCommandHangs(t *testing.T) {
	p, path := command(t, `[ -e $0.go ] && echo secret && exit
sleep 3600 &
echo $! >$0.pid
mv $0.pid $0.started
wait`)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for {
			if _, err := os.Stat(path + ".started"); err == nil {
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := p.password(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the first caller got %v", err)
	}
	pid, err := os.ReadFile(path + ".started")
	if err != nil {
		t.Fatal(err)
	}
	for { // it is a zombie until init or a subreaper has noticed
		status, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if err != nil || strings.Contains(string(status), ") Z ") {
			break
		}
		time.Sleep(time.Millisecond)
	}
	write(t, path+".go", "", 0o600)
	if got, err := p.password(t.Context()); err != nil || got != "secret" {
		t.Errorf("the second caller got %q, %v", got, err)
	}
}
