package apistorage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
)

// TestInterpret checks that every kind of error from a store becomes a server error without the driver's message.
func TestInterpret(t *testing.T) {
	t.Parallel()
	driver := errors.New("failed to connect to `user=keeper database=state`: 10.1.2.3:5432: SELECT revision FROM counter")
	failure := func(class error) error {
		return &dialect.Error{Op: "commit", Engine: "postgres", Err: fmt.Errorf("%w: %w", class, driver)}
	}
	for name, c := range map[string]struct {
		err  error
		want func(error) bool
	}{
		"unavailable": {failure(dialect.ErrUnavailable), apierrors.IsServiceUnavailable},
		"full":        {failure(dialect.ErrFull), apierrors.IsServiceUnavailable},
		"closed":      {fmt.Errorf("%w: %w", sqlstore.ErrClosed, driver), apierrors.IsServiceUnavailable},
		"late":        {fmt.Errorf("%w: %w", context.DeadlineExceeded, driver), apierrors.IsTimeout},
		"canceled":    {fmt.Errorf("%w: %w", context.Canceled, driver), apierrors.IsTimeout},
		"damaged":     {failure(dialect.ErrCorrupt), apierrors.IsInternalError},
		"refused":     {&dialect.Error{Op: "query", Engine: "postgres", Err: driver}, apierrors.IsInternalError},
		"unknown":     {driver, apierrors.IsInternalError},
	} {
		got := ClientError(c.err)
		if !c.want(got) || strings.Contains(got.Error(), driver.Error()) {
			t.Errorf("%s: got %T %v", name, got, got)
		}
	}
}
