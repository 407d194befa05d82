// Heights of a long list's items: sums and searches in log n (a Fenwick tree). Pure.

export class Heights {
  /** @param {number} estimate what an item counts before it is measured */
  constructor(estimate) {
    this.estimate = estimate;
    this.count = 0;
    /** @type {Float64Array} */ this.own = new Float64Array(0);
    /** @type {Float64Array} */ this.tree = new Float64Array(1);
  }

  /** @param {number} count */
  resize(count) {
    if (count === this.count) return;
    const size = Math.max(64, 2 ** Math.ceil(Math.log2(Math.max(1, count))));
    if (size !== this.own.length || count < this.count) {
      const own = new Float64Array(size);
      own.set(this.own.subarray(0, Math.min(this.count, count)));
      for (let i = Math.min(this.count, count); i < count; i += 1) own[i] = this.estimate;
      this.own = own;
      this.count = count;
      this.tree = new Float64Array(size + 1);
      for (let i = 1; i <= size; i += 1) {
        this.tree[i] += own[i - 1];
        const up = i + (i & -i);
        if (up <= size) this.tree[up] += this.tree[i];
      }
      return;
    }
    const from = this.count;
    this.count = count;
    for (let i = from; i < count; i += 1) this.set(i, this.estimate);
  }

  /** @param {number} index @param {number} height @returns {boolean} whether it is another */
  set(index, height) {
    const by = height - this.own[index];
    if (by === 0) return false;
    this.own[index] = height;
    for (let i = index + 1; i < this.tree.length; i += i & -i) this.tree[i] += by;
    return true;
  }

  /** The top of an item. @param {number} index */
  top(index) {
    let sum = 0;
    for (let i = Math.min(index, this.own.length); i > 0; i -= i & -i) sum += this.tree[i];
    return sum;
  }

  get total() {
    return this.top(this.count);
  }

  /** The item at a position. @param {number} y */
  at(y) {
    let index = 0;
    let left = y;
    for (let step = this.own.length; step > 0; step >>= 1) {
      if (index + step <= this.own.length && this.tree[index + step] <= left) {
        index += step;
        left -= this.tree[index];
      }
    }
    return Math.max(0, Math.min(index, this.count - 1));
  }
}
