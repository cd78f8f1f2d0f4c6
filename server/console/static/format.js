// Times, sizes and names, as people read them.

const two = (n) => String(n).padStart(2, '0');

/** ago returns a duration in milliseconds as kubectl does: 45s, 12m, 3h, 5d. */
export function ago(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 120) return `${s}s`;
  const m = Math.floor(s / 60);
  if (m < 10) return s % 60 ? `${m}m${s % 60}s` : `${m}m`;
  if (m < 180) return `${m}m`;
  const hours = Math.floor(m / 60);
  if (hours < 8) return m % 60 ? `${hours}h${m % 60}m` : `${hours}h`;
  if (hours < 48) return `${hours}h`;
  return `${Math.floor(hours / 24)}d`;
}

const units = { d: 86400e3, h: 3600e3, m: 60e3, s: 1e3 };

/** span returns how many milliseconds a duration of kubectl's is, NaN for other texts. */
export function span(text) {
  if (!/^(?:\d+[dhms])+$/.test(text)) return NaN;
  return [...text.matchAll(/(\d+)([dhms])/g)].reduce((sum, [, n, unit]) => sum + n * units[unit], 0);
}

/** clock returns a time of day, with the date unless it is today. */
export function clock(time) {
  const d = new Date(time);
  const text = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  return d.toDateString() === new Date().toDateString() ? text : `${day(d)} ${text}`;
}

/** day returns a date in short. */
export function day(time) {
  return new Date(time).toLocaleDateString(undefined, { day: 'numeric', month: 'short' });
}

/** count returns a number with thin spaces between thousands. */
export function count(n) {
  return String(n).replace(/\B(?=(\d{3})+$)/g, ' ');
}

/** value returns a JSON value on one line, strings without quotes unless they would look like something else. */
export function value(v) {
  if (v === undefined) return '';
  if (typeof v !== 'string') return JSON.stringify(v);
  return v === '' ? '""' : v;
}

/** readable returns a message of the API without whole objects in it. */
export const readable = (message) => message.replace(/ Invalid value: "(?:[^"\\]|\\.){200,}":/g, '');

/** who returns a user's name in short: service accounts without their prefix. */
export function who(user) {
  if (!user) return 'unknown';
  if (user.startsWith('host:')) return `host:${who(user.slice('host:'.length))}`; // of the server that hosts the cluster
  const account = /^system:serviceaccount:(.+):(.+)$/.exec(user);
  if (account) return account[1] === 'kube-system' ? account[2] : `${account[1]}/${account[2]}`;
  return user.replace(/^system:(node:)?/, '');
}

/** author returns who made a change, and in whose name. */
export const author = (c) => who(c.user) + (c.impersonatedUser ? ` as ${who(c.impersonatedUser)}` : '');

/** authorInFull is author with whole names. */
export const authorInFull = (c) => (c.user ?? '') + (c.impersonatedUser ? ` as ${c.impersonatedUser}` : '');

/** health returns good, busy or bad for a status that kinds of the API have, or ''. */
export function health(text) {
  if (/^(Running|Active|Bound|Ready|Complete|Completed|Succeeded|True|Available|Normal|Established|Awake)$/.test(text)) return 'good';
  if (/(BackOff|Err|Error|Failed|Evicted|OOMKilled|Lost|NotReady|Warning|Unknown|Invalid|DeadlineExceeded)/.test(text)) return 'bad';
  if (/^(Pending|Terminating|ContainerCreating|PodInitializing|Init:|Waiting|Suspended|Progressing|SchedulingDisabled|Creating$|Waking$|Deleting$)/.test(text)) return 'busy';
  const part = /^(\d+)\/(\d+)$/.exec(text);
  if (part) return part[1] === part[2] ? 'good' : 'busy';
  return '';
}

/** plural returns the name of several objects of a kind. */
export function plural(kind) {
  if (/(s|x)$/.test(kind) && kind !== 'Endpoints') return `${kind}es`;
  return /[^aeo]y$/.test(kind) ? `${kind.slice(0, -1)}ies` : kind === 'Endpoints' ? kind : `${kind}s`;
}
