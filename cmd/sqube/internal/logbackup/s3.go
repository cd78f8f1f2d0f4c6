package logbackup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// bucket is a Place in an S3 store.
type bucket struct {
	client       *minio.Client
	name, prefix string
}

// partSize is the size of the parts in which larger files are uploaded, each from memory. S3 accepts at most 10,000 parts.
const partSize = 16 << 20

// retries is how often a request is sent. After that, the caller gets the error and tries again.
const retries = 4

// parseS3 parses s3://BUCKET/PREFIX?endpoint=URL&region=REGION. What the URL does not specify, and the
// credentials, come from where AWS' tools look: the environment, ~/.aws, or the machine's role.
func parseS3(text string) (Place, error) {
	const form = "s3://BUCKET/PREFIX, with ?endpoint=https://HOST:PORT for other stores than AWS' own"
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" { // the text may contain a secret
		return nil, errors.New("a place in S3 must be " + form + "; credentials belong in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials")
	}
	parameters := u.Query()
	for key := range parameters {
		if key != "endpoint" && key != "region" {
			return nil, fmt.Errorf("%s has no parameter %q: want %s", u.Scheme+"://"+u.Host+u.Path, key, form)
		}
	}
	endpoint := cmp.Or(parameters.Get("endpoint"), os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), "https://s3.amazonaws.com")
	at, err := url.Parse(endpoint)
	if err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" || strings.Trim(at.Path, "/") != "" {
		return nil, fmt.Errorf("the endpoint of S3 must be like https://HOST:PORT, not %q", endpoint)
	}
	client, err := minio.New(at.Host, &minio.Options{
		MaxRetries: retries,
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}),
		Secure: at.Scheme == "https",
		Region: cmp.Or(parameters.Get("region"), os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
	})
	if err != nil {
		return nil, fmt.Errorf("S3 at %s: %w", endpoint, err)
	}
	client.SetAppInfo("sqube", "")
	return &bucket{client, u.Host, strings.Trim(u.Path, "/")}, nil
}

func (b *bucket) String() string { return "s3://" + path.Join(b.name, b.prefix) }

// key is the name of a file in the bucket.
func (b *bucket) key(name string) string { return path.Join(b.prefix, name) }

func (b *bucket) List(ctx context.Context) (files []File, err error) {
	prefix := ""
	if b.prefix != "" {
		prefix = b.prefix + "/"
	}
	for object := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if object.Err != nil {
			return nil, b.failed("list", object.Err)
		}
		files = append(files, File{strings.TrimPrefix(object.Key, prefix), object.Size, object.LastModified})
	}
	return files, nil
}

func (b *bucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	object, err := b.client.GetObject(ctx, b.name, b.key(name), minio.GetObjectOptions{})
	if err != nil {
		return nil, b.failed("read "+name, err)
	}
	if _, err := object.Stat(); err != nil { // sends the request
		return nil, errors.Join(b.failed("read "+name, err), object.Close())
	}
	return object, nil
}

func (b *bucket) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	from, to := io.Pipe()
	go func() { to.CloseWithError(write(to)) }()
	defer from.Close() // stops write
	var first bytes.Buffer
	size := int64(-1) // unknown
	_, err := io.CopyN(&first, from, partSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	content := io.Reader(&first)
	if err != nil {
		size = int64(first.Len())
	} else {
		content = io.MultiReader(&first, from)
	}
	_, err = b.client.PutObject(ctx, b.name, b.key(name), content, size, minio.PutObjectOptions{
		ContentType: "application/gzip", PartSize: partSize, NumThreads: 1, SendContentMd5: true,
	})
	return b.failed("write "+name, err)
}

func (b *bucket) Remove(ctx context.Context, name string) error {
	return b.failed("remove "+name, b.client.RemoveObject(ctx, b.name, b.key(name), minio.RemoveObjectOptions{}))
}

// failed adds the operation to an error. A missing file becomes fs.ErrNotExist.
func (b *bucket) failed(op string, err error) error {
	if err == nil {
		return nil
	}
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		err = fmt.Errorf("%w: %w", os.ErrNotExist, err)
	}
	return fmt.Errorf("%s: %s: %w", b, op, err)
}

// An S3 store has no locks, so its holder keeps rewriting a file. If the file does not change for leaseTime, the holder is gone. Only this
// machine's clock is used.
const (
	leaseName  = "holder.json"
	leaseRenew = 5 * time.Second
	leaseTime  = 4 * leaseRenew
)

// lease is the content of leaseName.
type lease struct {
	Holder  string `json:"holder"`
	Beat    int64  `json:"beat"` // how often it was renewed
	Host    string `json:"host"`
	Process int    `json:"process"`
}

// gone reports whether the holder was a process of this machine and has ended.
func (l lease) gone() bool {
	host, err := os.Hostname()
	if err != nil || l.Host != host {
		return false
	}
	return l.Process == os.Getpid() || errors.Is(syscall.Kill(l.Process, 0), syscall.ESRCH)
}

func (b *bucket) Hold(ctx context.Context) (<-chan struct{}, func(context.Context) error, error) {
	if err := b.awaitLease(ctx); err != nil {
		return nil, nil, err
	}
	own := lease{Holder: rand.Text(), Process: os.Getpid()}
	own.Host, _ = os.Hostname() // without a name, wait for a former holder
	if err := b.writeLease(ctx, own); err != nil {
		return nil, nil, err
	}
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	lost, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if !b.renew(renewing, own) {
			close(lost)
		}
	}()
	return lost, func(ctx context.Context) error {
		stop()
		<-ended
		select {
		case <-lost:
			return nil
		default:
			return b.Remove(ctx, leaseName)
		}
	}, nil
}

// awaitLease returns when the store has no holder.
func (b *bucket) awaitLease(ctx context.Context) error {
	found, err := b.readLease(ctx)
	if err != nil || found == nil || found.gone() {
		return err
	}
	for waited := time.Duration(0); waited < leaseTime; waited += leaseRenew {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(leaseRenew + leaseRenew/2):
		}
		now, err := b.readLease(ctx)
		switch {
		case err != nil || now == nil:
			return err
		case *now != *found:
			return fmt.Errorf("%w (it is process %d on %s)", ErrHeld, now.Process, now.Host)
		}
	}
	return nil
}

// renew renews the lease until ctx ends. It returns false if another process has taken it. While the store is unreachable it keeps
// trying.
func (b *bucket) renew(ctx context.Context, own lease) bool {
	for {
		own.Beat++
		select {
		case <-ctx.Done():
			return true
		case <-time.After(leaseRenew):
		}
		bounded, cancel := context.WithTimeout(ctx, leaseTime)
		now, err := b.readLease(bounded)
		if err == nil && (now == nil || now.Holder == own.Holder) {
			_ = b.writeLease(bounded, own) // retried in the next round
		}
		cancel()
		if err == nil && now != nil && now.Holder != own.Holder {
			return false
		}
	}
}

// readLease returns nil if there is none.
func (b *bucket) readLease(ctx context.Context) (*lease, error) {
	from, err := b.Open(ctx, leaseName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer from.Close()
	l := &lease{}
	if err := json.NewDecoder(from).Decode(l); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", b, leaseName, err)
	}
	return l, nil
}

func (b *bucket) writeLease(ctx context.Context, l lease) error {
	return b.Put(ctx, leaseName, func(to io.Writer) error { return json.NewEncoder(to).Encode(l) })
}
