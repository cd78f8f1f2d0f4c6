package console

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// newBrowser starts Chromium, the one on PATH.
func newBrowser() (context.Context, func(), error) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		return nil, nil, fmt.Errorf("%w; install it:\n    test/tools/need chromium chromium", err)
	}
	profile, err := os.MkdirTemp("", "sqube-console-")
	if err != nil {
		return nil, nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.IgnoreCertErrors, chromedp.UserDataDir(profile), chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("font-render-hinting", "none"), chromedp.Env("TZ=UTC", "LANGUAGE=en"))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	browser, closeAll := chromedp.NewContext(allocator)
	end := func() { closeAll(); stop(); os.RemoveAll(profile) }
	if err := chromedp.Do(browser, chromedp.Navigate("about:blank")); err != nil {
		end()
		return nil, nil, err
	}
	return browser, end, nil
}

// page is a tab of the browser, with a session of its own.
type page struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string // exceptions, and what the content security policy refused
	expected string   // a part of a problem that the test causes
}

// newPage opens a tab on the console, where nobody has signed in. The test fails if a script does or if the policy refuses something.
func newPage(t testing.TB) *page {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	p := &page{TB: t, ctx: ctx}
	t.Cleanup(func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, problem := range p.problems {
			if p.expected == "" || !strings.Contains(problem, p.expected) {
				t.Error(problem)
			}
		}
	})
	must(t, chromedp.Do(ctx, chromedp.Navigate("about:blank")))
	must(t, chromedp.Listen(ctx, p.listen))
	call(p, log.Enable, cdp.Empty{})
	call(p, runtime.Enable, cdp.Empty{})
	p.size(1280, 800, "light")
	must(t, chromedp.Do(ctx, chromedp.Navigate(address+"/console/")))
	p.sees("Sign in")
	return p
}

func (p *page) listen(event any) {
	problem := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		problem = e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			problem += " " + e.ExceptionDetails.Exception.Description
		}
	case *log.EventEntryAdded:
		if strings.Contains(e.Entry.Text, "Content Security Policy") {
			problem = e.Entry.Text
		}
	}
	if problem != "" {
		p.mu.Lock()
		p.problems = append(p.problems, problem)
		p.mu.Unlock()
	}
}

func call[P, R any](p *page, command cdp.Command[P, R], params P) {
	p.Helper()
	_, err := chromedp.Call(p.ctx, command, params)
	must(p, err)
}

// size sets the size of the window and the color scheme.
func (p *page) size(width, height int64, scheme string) {
	p.Helper()
	call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600})
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// eval returns what a JavaScript expression has.
func eval[T any](p *page, expression string) T {
	p.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits until an expression is true. It may have no value while the page goes to another one.
func (p *page) until(expression string) {
	p.Helper()
	deadline := time.Now().Add(patience)
	for {
		holds, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool]("Boolean("+expression+")", chromedp.EvalAwaitPromise))
		if err != nil && !strings.Contains(err.Error(), "Inspected target navigated or closed") {
			p.Fatalf("%s: %v", expression, err)
		}
		if holds {
			return
		}
		if time.Now().After(deadline) {
			p.Fatalf("%s is not true. The page at %s shows:\n%s", expression, eval[string](p, "location.hash"), eval[string](p, "document.body.innerText"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func quote(text string) string {
	quoted, _ := json.Marshal(text)
	return string(quoted)
}

// sees waits until the page shows texts.
func (p *page) sees(texts ...string) {
	p.Helper()
	for _, text := range texts {
		p.until("document.body?.innerText.includes(" + quote(text) + ")")
	}
}

// misses waits until the page does not show a text.
func (p *page) misses(text string) {
	p.Helper()
	p.until("!document.body.innerText.includes(" + quote(text) + ")")
}

// element is the visible element of a selector with a text.
func element(selector, text string) string {
	return fmt.Sprintf("[...document.querySelectorAll(%s)].find((e) => e.checkVisibility() && e.textContent.includes(%s))", quote(selector), quote(text))
}

// click clicks an element of a selector with a text, with the mouse.
func (p *page) click(selector, text string) {
	p.Helper()
	p.until(element(selector, text))
	at := eval[[]float64](p, "(() => { const e = "+element(selector, text)+"; e.scrollIntoView({block: 'nearest'}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
	must(p, chromedp.Do(p.ctx, chromedp.MouseClickXY(at[0], at[1])))
}

// keys types. As with a keyboard, a key that the page has handled types nothing.
func (p *page) keys(keys string) {
	p.Helper()
	for _, key := range keys {
		for _, event := range kb.Encode(key) {
			if event.Type == kb.KeyDown {
				event.Type = input.DispatchKeyEventTypeRawKeyDown
			}
			call(p, input.DispatchKeyEvent, *event)
		}
	}
}

// open opens a link of the console.
func (p *page) open(hash string) {
	p.Helper()
	eval[any](p, "location.hash = "+quote(hash))
}

// signedIn opens a tab in which a user is signed in.
func signedIn(t testing.TB, token string) *page {
	t.Helper()
	p := newPage(t)
	p.signIn(token)
	p.until("document.querySelector('.timebar')")
	return p
}

func (p *page) signIn(token string) {
	p.Helper()
	p.until("document.activeElement.id === 'token'")
	eval[any](p, "document.activeElement.value = "+quote(token))
	p.keys("\r")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
