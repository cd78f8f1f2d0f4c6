package logbackup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"strings"
	"sync/atomic"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// bucket is a Place in an S3 store.
type bucket struct {
	client       *minio.Client
	name, prefix string
	unswept      atomic.Bool // Sweep has failed
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
	return &bucket{client: client, name: u.Host, prefix: strings.Trim(path.Clean("/"+u.Path), "/")}, nil // see key
}

func (b *bucket) String() string { return "s3://" + path.Join(b.name, b.prefix) }

// key is the name of a file in the bucket.
func (b *bucket) key(name string) string { return path.Join(b.prefix, name) }

// folder is what the keys of all files begin with.
func (b *bucket) folder() string {
	if b.prefix == "" {
		return ""
	}
	return b.prefix + "/"
}

func (b *bucket) List(ctx context.Context) (files []File, err error) {
	prefix := b.folder()
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
	return &download{object, b, name}, nil
}

// download is a file that is being read. Its errors are those of Open.
type download struct {
	*minio.Object
	from *bucket
	name string
}

func (d *download) Read(p []byte) (int, error) {
	n, err := d.Object.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = d.from.failed("read "+d.name, err)
	}
	return n, err
}

func (b *bucket) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	from, to := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		to.CloseWithError(write(to))
	}()
	defer func() {
		_ = from.Close() // stops write, which must not use the database after Put has returned
		<-ended
	}()
	var first bytes.Buffer
	size := int64(-1) // unknown
	_, err := io.CopyN(&first, from, partSize)
	// Only io.EOF itself is the end: an error of write may wrap one, such as that of a proxy which closes connections to the database.
	if err != nil && err != io.EOF {
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

// Sweep tries once: a store may not allow it.
func (b *bucket) Sweep(ctx context.Context) (err error) {
	if b.unswept.Load() {
		return nil
	}
	for upload := range b.client.ListIncompleteUploads(ctx, b.name, b.folder(), true) { // to its end, so that no goroutine stays
		switch name := strings.TrimPrefix(upload.Key, b.folder()); {
		case err != nil:
		case upload.Err != nil:
			err = b.failed("list interrupted uploads", upload.Err)
		case isBackup(name):
			err = b.failed("remove the parts of "+name, (&minio.Core{Client: b.client}).AbortMultipartUpload(ctx, b.name, upload.Key, upload.UploadID))
		}
	}
	b.unswept.Store(err != nil && ctx.Err() == nil)
	return err
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
